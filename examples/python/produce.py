import os
import grpc
from varvelog.v1 import log_service_pb2 as log, log_service_pb2_grpc as rpc, types_pb2 as types

stub = rpc.LogServiceStub(grpc.insecure_channel(os.environ["VARVELOG_SERVER"]))
stub.Produce(log.ProduceRequest(topic="flights", records=[types.NewRecord(key=b"SAN", value=b"hello from python")]))
