<?php

declare(strict_types=1);

use RoadRunner\Centrifugo\CentrifugoWorker;
use RoadRunner\Centrifugo\Payload\ConnectResponse;
use RoadRunner\Centrifugo\Payload\RPCResponse;
use RoadRunner\Centrifugo\Request\Connect;
use RoadRunner\Centrifugo\Request\RequestFactory;
use RoadRunner\Centrifugo\Request\RPC;
use RoadRunner\Centrifugo\RPCCentrifugoApi;
use Spiral\Goridge\RPC\RPC as ServerRpc;
use Spiral\RoadRunner\Worker;

require __DIR__ . '/vendor/autoload.php';

$worker = Worker::create();
$centrifugo = new CentrifugoWorker($worker, new RequestFactory($worker));
$api = new RPCCentrifugoApi(ServerRpc::create(\getenv('RR_RPC')));

while ($request = $centrifugo->waitRequest()) {
    try {
        if ($request instanceof Connect) {
            // Each client may come, under a name of its own, and hears the chat.
            $name = 'guest-' . \bin2hex(\random_bytes(2));
            $request->respond(new ConnectResponse(user: $name, channels: ['chat']));
        } elseif ($request instanceof RPC && $request->method === 'say') {
            $text = \mb_substr((string) ($request->getData()['text'] ?? ''), 0, 500);
            $api->publish('chat', \json_encode(['from' => $request->user, 'text' => $text], \JSON_THROW_ON_ERROR));
            $request->respond(new RPCResponse(data: ['said' => $text]));
        } else {
            $request->error(404, 'there is no such method');
        }
    } catch (\Throwable $failed) {
        $request->error(500, 'it failed');
        \fwrite(\STDERR, $failed . "\n");
    }
}
