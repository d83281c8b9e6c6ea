"""Studies on stand-ins, figures of single papers and concepts, and the preparation of their data.

run, check_loss                trainings of a study and its page; a loss among those of a study
compare, simulate              the same for comparisons; coverage of their intervals
prepare_drawings               emoji and shapes from packages of npm and pip
draw_concepts, draw_emoji      pictures of docs/concepts and of docs/results
show_field, show_proxies       figures of pfml and ccp

reality_check/                 which losses are better when everything else is equal; the code of
                               all studies
comparison/                    comparisons in which the search is a part of each arm
heads_emoji/, heads_shapes/    declarations of comparisons of heads on stored features
networks_emoji/                the same of a network with its backbone
reality_check_mlp/             the best of them with another head
fine_tuning/, fine_tuning_shapes/   the same with a whole network
concepts/                      what draw_concepts draws
emoji/                         preparation of data=emoji
potential_plot, proxy_figure   figures of pfml and ccp
pictures                       small files for the pictures of pages
packages                       preparation of datasets from packages of npm and pip
shapes                         preparation of data=shapes
mnist                          images of the figure of ccp
"""
