"""A server of moto with an empty bucket: prints its endpoint, and ends with its standard input."""
import sys

import boto3
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
endpoint = "http://%s:%d" % server.get_host_and_port()
keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **keys).create_bucket(Bucket=sys.argv[1])
print(endpoint, flush=True)
sys.stdin.read()
