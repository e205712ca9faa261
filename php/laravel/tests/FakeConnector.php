<?php

declare(strict_types=1);

namespace Pronghorn\Laravel\Tests;

use Illuminate\Queue\Connectors\ConnectorInterface;
use Pronghorn\Jobs\FakeQueue;
use Pronghorn\Jobs\Queue;
use Pronghorn\Laravel\Queue\PronghornQueue;

/** Our driver over a queue that keeps what is pushed. */
final class FakeConnector implements ConnectorInterface
{
    public function __construct(private readonly FakeQueue $pushed)
    {
    }

    /** @param array<string, mixed> $config */
    public function connect(array $config): PronghornQueue
    {
        return new PronghornQueue(fn (): Queue => $this->pushed, 'mail', $config['after_commit'], $config['tries']);
    }
}
