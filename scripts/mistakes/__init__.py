"""Mistakes that are planted to see whether tests find them: `scripts/plant_mistakes.py`.

catalog     the mistakes of the files `<room>.yaml`
planting    where a mistake belongs, and the source with it
copies      copies of the repository's files
trials      the tests of a mistake, run in a copy
report_plugin   what pytest tells about tests that failed

A file has the mistakes of one part of the framework, its room, as a list of entries:

name        unique; lower case, words joined by hyphens
wrong       what a user would get wrong
definition  full name of a function, class, method or constant; or of a module
code        piece of its source that occurs exactly once; any white space matches any other
mistake     what is written instead
tests       files that must find it, the nearest first
small       true: a number of a table changes by less than 3 %, and nothing raises an error
"""
