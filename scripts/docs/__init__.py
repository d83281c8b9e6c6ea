"""Pages of the documentation that are generated from configs, docstrings and the typed config.

pages             every generated page; writes them and finds those that are out of date
loss_pages        a page per loss and their table
method_pages      a page per method and their table
option_pages      reference of all options, and of the groups with their choices
experiment_page   catalog of the papers' tables and figures
python_pages      reference of the Python API: the names of each page
site              the folder from which a site is built
texts/            titles, equations, papers and advice, which no config or docstring holds
templates/        the Markdown of the pages

commented_yaml    options of a config file with their comments
docstrings        sections and arguments of a docstring
option_types      type and range of an option of the typed config
published_values  hyperparameters of papers, by loss and dataset
experiment_index  experiments, and those that use a loss or method
markdown          text and tables in Markdown
equations         equations as MathML
python_reference  entries of the Python reference, from signatures and docstrings
"""
