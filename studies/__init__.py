"""Studies on stand-ins, figures of single papers and concepts, and the preparation of their data.

compare, check_loss            training runs and page of a comparison; a loss of yours in it
simulate                       how often the intervals of a comparison hold
prepare_drawings               emoji and shapes from packages of npm and pip
draw_concepts, draw_emoji      pictures of docs/concepts and of docs/results
show_field, show_proxies       figures of pfml and ccp

comparison/                    comparisons of losses and methods; the search is a part of each arm
heads_emoji/, heads_shapes/    declarations of comparisons of heads on stored features
networks_emoji/                the same of whole networks
concepts/                      what draw_concepts draws
emoji/                         preparation of data=emoji
potential_plot, proxy_figure   figures of pfml and ccp
pictures                       small files for the pictures of pages
packages                       preparation of datasets from packages of npm and pip
shapes                         preparation of data=shapes
mnist                          images of the figure of ccp
"""
