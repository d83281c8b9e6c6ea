"""Studies on stand-ins, figures of single papers, and the preparation of their data.

reality_check/                 which losses are better when everything else is equal
reality_check_mlp/             the best of them with another head
emoji/                         preparation of data=emoji
potential_plot, proxy_figure   figures of pfml and ccp
packages                       preparation of datasets from packages of npm and pip
shapes                         preparation of data=shapes
mnist                          images of the figure of ccp
"""
