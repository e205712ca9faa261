<?php

declare(strict_types=1);

namespace Pronghorn\Symfony\Messenger;

use Symfony\Component\Messenger\Envelope;
use Symfony\Component\Messenger\Transport\Receiver\ReceiverInterface;

/** Gives Symfony's worker one message, and then ends it. */
final class OneMessage implements ReceiverInterface
{
    /** Whether it was refused at last, or is one that its worker has sent anew. */
    public bool $isRejected = false;

    /** @param \Closure(): void $end */
    public function __construct(private readonly Envelope $envelope, private readonly \Closure $end)
    {
    }

    public function get(): iterable
    {
        // Also when the worker neither accepts nor rejects it, as a listener may want it.
        ($this->end)();

        return [$this->envelope];
    }

    public function ack(Envelope $envelope): void
    {
    }

    public function reject(Envelope $envelope): void
    {
        $this->isRejected = true;
    }
}
