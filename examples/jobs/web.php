<?php

// Pushes a job for each request, and waits for what comes of it.

declare(strict_types=1);

use Pronghorn\Jobs\JobFailed;
use Pronghorn\Jobs\NotDone;
use Pronghorn\Jobs\Options;
use Pronghorn\Jobs\Queue;
use Pronghorn\Request;
use Pronghorn\Response;

require __DIR__ . '/../../php/autoload.php';

Pronghorn\serve(static function (Request $request): string|Response {
    static $queue = null;
    $queue ??= Queue::connect();
    $name = $request->query()['name'] ?? 'world';
    $id = $queue->push('greet', ['name' => $name], new Options(result: true));
    try {
        return $queue->await($id, 5.0) . "\n";
    } catch (JobFailed $failed) {
        // Why is for the log: a client has no business with it.
        error_log($failed->remoteTrace() ?? $failed->getMessage());

        return new Response("The job was given up.\n", 500);
    } catch (NotDone) {
        return new Response("Job $id is still to be done.\n", 202);
    }
});
