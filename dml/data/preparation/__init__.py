"""`dml prepare`: download, unpack and check datasets.

sources       addresses, checksums and files of the published datasets
unpack        archives, without files outside of their folder
copies        datasets in another layout, in folders and archives of the user
image_check   damaged, huge and misnamed images
prepare       all of it for one dataset
"""
