"""The demo: real data of this machine through Spark into three replicas, one of which is killed on the way."""
