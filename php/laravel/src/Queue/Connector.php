<?php

declare(strict_types=1);

namespace Pronghorn\Laravel\Queue;

use Illuminate\Contracts\Queue\Queue;
use Illuminate\Queue\Connectors\ConnectorInterface;
use Pronghorn\Jobs\Queue as Jobs;

/** Makes the connection that `config/queue.php` describes with the driver `pronghorn`. */
final class Connector implements ConnectorInterface
{
    /** The tries of a job that does not say it, as `queue:work` has it. */
    public const TRIES = 1;

    /** @param array<string, mixed> $config */
    public function connect(array $config): Queue
    {
        $pipeline = $config['queue'] ?? Jobs::PIPELINE;
        // The server is asked for by the first push: an application that pushes nothing needs none.
        $connect = static fn (): Jobs => Jobs::connect($config['address'] ?? null, $pipeline);
        $tries = (int) ($config['tries'] ?? self::TRIES);

        return new PronghornQueue($connect, $pipeline, (bool) ($config['after_commit'] ?? false), $tries);
    }
}
