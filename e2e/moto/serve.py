"""moto's server, with what its queues lack: `python serve.py -H HOST -p PORT`.

Each request has a thread, and the list of a queue's messages is written anew when one of them is
deleted: one that is sent meanwhile would be lost, and one that two ask for be given to both. Here
the requests to a queue take turns. Who waits for messages lets the others in meanwhile.
"""

from functools import wraps

from moto.server import main
from moto.sqs.models import SQSBackend


def in_turn(method):
    @wraps(method)
    def with_the_queue(self, queue_name, *args, **more):
        with self.get_queue(queue_name)._messages_lock:
            return method(self, queue_name, *args, **more)

    return with_the_queue


for name in (
    "change_message_visibility",
    "change_message_visibility_batch",
    "delete_message",
    "get_queue_attributes",
    "receive_message",
    "send_message_batch",
):
    setattr(SQSBackend, name, in_turn(getattr(SQSBackend, name)))

main()
