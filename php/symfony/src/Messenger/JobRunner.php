<?php

declare(strict_types=1);

namespace Pronghorn\Symfony\Messenger;

use Pronghorn\Job;
use Psr\Container\ContainerInterface;
use Symfony\Component\EventDispatcher\EventDispatcherInterface;
use Symfony\Component\Messenger\Event\WorkerMessageFailedEvent;
use Symfony\Component\Messenger\MessageBusInterface;
use Symfony\Component\Messenger\Worker;
use Symfony\Contracts\Service\ResetInterface;

/**
 * Runs jobs as `messenger:consume` does: with Symfony's events, middleware, retry strategies and
 * failure transport.
 *
 * A message that is retried is sent anew by Symfony, so its job is done. One that is given up
 * becomes a dead letter of the server as well.
 */
final class JobRunner
{
    public function __construct(
        private readonly ContainerInterface $transports,
        private readonly MessageBusInterface $bus,
        private readonly EventDispatcherInterface $events,
        private readonly ?ResetInterface $services = null,
    ) {
    }

    public function run(Job $job): void
    {
        $name = $job->header(Transport::NAME);
        if ($name === null || !$this->transports->has($name)) {
            $job->fail($name === null
                ? 'it was not sent by a transport `pronghorn://…` of messenger'
                : "the application has no transport `$name`");

            return;
        }
        $transport = $this->transports->get($name);
        if (!$transport instanceof Transport) {
            $job->fail("the transport `$name` is none with a DSN `pronghorn://…`");

            return;
        }
        $failed = null;
        $listener = static function (WorkerMessageFailedEvent $event) use (&$failed): void {
            $failed = $event->willRetry() ? null : $event->getThrowable();
        };
        $this->events->addListener(WorkerMessageFailedEvent::class, $listener, \PHP_INT_MIN);
        try {
            $worker = null;
            $message = new OneMessage($transport->message($job), static function () use (&$worker): void {
                $worker->stop();
            });
            $worker = new Worker([$name => $message], $this->bus, $this->events);
            $worker->run();
        } finally {
            $this->events->removeListener(WorkerMessageFailedEvent::class, $listener);
            $this->services?->reset();
        }
        if ($message->isRejected && $failed !== null) {
            $job->fail($failed->getPrevious() ?? $failed);
        }
    }
}
