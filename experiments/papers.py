"""All papers by name, with their tables and figures."""

from typing import Final

from experiments import fidelity, measured
from experiments.amesos import figures as amesos
from experiments.amesos import live as amesos_live
from experiments.amesos import pictures as amesos_pictures
from experiments.binpack import live as binpack_live
from experiments.binpack import pictures as binpack_pictures
from experiments.binpack import tables as binpack
from experiments.elastic_faas import pictures as elastic_faas_pictures
from experiments.elastic_faas import tables as elastic_faas
from experiments.multiqueue import pictures as multiqueue_pictures
from experiments.multiqueue import steady
from experiments.multiqueue import tables as multiqueue
from experiments.newsvendor import functions, loads, networks, queues
from experiments.newsvendor import tables as newsvendor
from experiments.paper import Paper
from experiments.pubsub import figures as pubsub
from experiments.pubsub import paired
from experiments.pubsub import pictures as pubsub_pictures

AMESOS: Final = Paper(
    "amesos",
    "AMESoS, DEBS 2022",
    (*amesos.TABLES, *amesos_live.TABLES),
    amesos.AmesosSettings,
    amesos_pictures.FIGURES,
)
BINPACK: Final = Paper(
    "binpack",
    "Latency-aware bin-pack autoscaling of Kafka consumers, CLOSER 2024",
    (*binpack.TABLES, *binpack_live.TABLES),
    binpack.BinpackSettings,
    binpack_pictures.FIGURES,
)
ELASTIC_FAAS: Final = Paper(
    "elastic-faas",
    "Elastic-FaaS, IJITEE 2019",
    elastic_faas.TABLES,
    elastic_faas.ElasticFaasSettings,
    elastic_faas_pictures.FIGURES,
)
MULTIQUEUE: Final = Paper(
    "multiqueue",
    "Elastic Multi-M/M/s/K, 2019",
    (*multiqueue.TABLES, steady.TABLE),
    steady.MultiqueueSettings,
    multiqueue_pictures.FIGURES,
)
PUBSUB: Final = Paper(
    "pubsub",
    "Elastic pub/sub, extended version",
    (*pubsub.TABLES, paired.TABLE),
    pubsub.PubsubSettings,
    pubsub_pictures.FIGURES,
)
NEWSVENDOR: Final = Paper(
    "newsvendor",
    "Our own scaler beside tuned rivals",
    (*newsvendor.TABLES, loads.TABLE, functions.TABLE, queues.TABLE, networks.TABLE),
    networks.NewsvendorNetworkSettings,
)
FIDELITY: Final = Paper("fidelity", "Live runs beside their simulation", fidelity.TABLES)
ANY: Final = Paper("any", "Runs of any experiment", (measured.TABLE,))

OF_PAPERS: Final = (AMESOS, BINPACK, ELASTIC_FAAS, MULTIQUEUE, PUBSUB)
"""The five papers; the others are our own."""
PAPERS: Final = {paper.name: paper for paper in (*OF_PAPERS, NEWSVENDOR, FIDELITY, ANY)}
