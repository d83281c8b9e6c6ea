from dml.core.metric_names import CHOICES, is_retrieval_metric, metric_label


def test_labels_and_kinds_of_metrics():
    assert CHOICES == "map_at_r | r_precision | precision_at_1 | recall_at_<K>"
    labels = {"map_at_r": "MAP@R", "precision_at_1": "P@1", "recall_at_10": "Recall@10"}
    labels |= {"mean_average_precision": "mAP", "nmi": "NMI", "ami": "AMI"}
    for name, label in labels.items():
        assert metric_label(name) == label
        assert is_retrieval_metric(name)
    for name in ("queries", "loss", "recall_at_K"):
        assert not is_retrieval_metric(name)
    assert metric_label("loss") == "loss"
