"""`dml prepare`: download, unpack and check datasets.

sources       addresses, checksums and files of the published datasets
unpack        archives, without files outside of their folder
image_check   damaged, huge and misnamed images
prepare       all of it for one dataset
"""
