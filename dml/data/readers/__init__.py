"""One reader per dataset, each of which returns an index of images with labels and roles.

folder and folder_names read a user's images; published_dataset checks the counts of published ones,
whose copies layouts finds.
"""
