"""Studies on stand-ins, figures of single papers, and the rehearsal of all experiments.

pilot_page, seed_results, variants, mixing_pull   the pilots `claims_*` of docs/results
emoji_neighbors                                   a picture of them that credits its drawings
rehearsal                                         every experiment in its smallest form
metrix_analysis, potential_plot, proxy_figure     figures of metrix, pfml and ccp
"""
