"""All papers by name, with their tables and figures."""

from typing import Final

from experiments import measured
from experiments.amesos import figures as amesos
from experiments.amesos import live as amesos_live
from experiments.binpack import tables as binpack
from experiments.elastic_faas import tables as elastic_faas
from experiments.multiqueue import steady
from experiments.multiqueue import tables as multiqueue
from experiments.newsvendor import tables as newsvendor
from experiments.paper import Paper
from experiments.pubsub import figures as pubsub
from experiments.pubsub import paired

AMESOS: Final = Paper("amesos", "AMESoS, DEBS 2022", (*amesos.TABLES, *amesos_live.TABLES), amesos.AmesosSettings)
BINPACK: Final = Paper(
    "binpack",
    "Latency-aware bin-pack autoscaling of Kafka consumers, CLOSER 2024",
    binpack.TABLES,
    binpack.BinpackSettings,
)
ELASTIC_FAAS: Final = Paper(
    "elastic-faas", "Elastic-FaaS, IJITEE 2019", elastic_faas.TABLES, elastic_faas.ElasticFaasSettings
)
MULTIQUEUE: Final = Paper(
    "multiqueue", "Elastic Multi-M/M/s/K, 2019", (*multiqueue.TABLES, steady.TABLE), steady.MultiqueueSettings
)
PUBSUB: Final = Paper(
    "pubsub", "Elastic pub/sub, extended version", (*pubsub.TABLES, paired.TABLE), pubsub.PubsubSettings
)
NEWSVENDOR: Final = Paper(
    "newsvendor", "Our own scaler beside tuned rivals", newsvendor.TABLES, newsvendor.NewsvendorSettings
)
ANY: Final = Paper("any", "Runs of any experiment", (measured.TABLE,))

PAPERS: Final = {paper.name: paper for paper in (AMESOS, BINPACK, ELASTIC_FAAS, MULTIQUEUE, PUBSUB, NEWSVENDOR, ANY)}
