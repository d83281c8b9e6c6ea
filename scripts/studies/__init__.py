"""Studies on stand-ins, figures of single papers, and the rehearsal of all experiments.

pilot_page, seed_results, variants, mixing_pull   the pilots `claims_*` of docs/results
emoji/                                            preparation of data=emoji, and a picture of it
rehearsal                                         every experiment in its smallest form
metrix_analysis, potential_plot, proxy_figure     figures of metrix, pfml and ccp
mnist                                             images of the figure of ccp
"""
