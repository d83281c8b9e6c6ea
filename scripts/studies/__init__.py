"""Studies on stand-ins, figures of single papers, and the rehearsal of all experiments.

emoji/                                          preparation of data=emoji, and a picture of it
rehearsal                                       every experiment in its smallest form
metrix_analysis, potential_plot, proxy_figure   figures of metrix, pfml and ccp
packages                                        preparation of datasets from packages of npm and pip
shapes                                          preparation of data=shapes
mnist                                           images of the figure of ccp
"""
