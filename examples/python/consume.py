import os
import grpc
from varvelog.v1 import group_service_pb2 as group, group_service_pb2_grpc as rpc

stub = rpc.GroupServiceStub(grpc.insecure_channel(os.environ["VARVELOG_SERVER"]))
for response in stub.Consume(group.ConsumeRequest(group="python", topics=["flights"])):
    for record in response.records:
        print(record.value.decode())
    if response.ack_token:
        stub.Ack(group.AckRequest(ack_token=response.ack_token))
        break
