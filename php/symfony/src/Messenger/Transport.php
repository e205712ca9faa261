<?php

declare(strict_types=1);

namespace Pronghorn\Symfony\Messenger;

use Pronghorn\Exception;
use Pronghorn\Job;
use Pronghorn\Jobs\Options;
use Pronghorn\Jobs\Queue;
use Symfony\Component\Messenger\Envelope;
use Symfony\Component\Messenger\Exception\TransportException;
use Symfony\Component\Messenger\Stamp\DelayStamp;
use Symfony\Component\Messenger\Stamp\TransportMessageIdStamp;
use Symfony\Component\Messenger\Transport\Receiver\MessageCountAwareInterface;
use Symfony\Component\Messenger\Transport\Serialization\SerializerInterface;
use Symfony\Component\Messenger\Transport\TransportInterface;

/**
 * Sends messages as jobs of a pipeline. They are not fetched: the server brings them to its
 * workers, where {@see JobRunner} gives them to their handlers.
 */
final class Transport implements TransportInterface, MessageCountAwareInterface
{
    /** The header of a job that names the transport, for one pipeline may have several. */
    public const NAME = 'x-pronghorn-transport';

    private ?Queue $queue = null;

    /** @param \Closure(): Queue $connect */
    public function __construct(
        private readonly \Closure $connect,
        private readonly string $pipeline,
        private readonly string $name,
        private readonly SerializerInterface $serializer,
    ) {
    }

    public function send(Envelope $envelope): Envelope
    {
        $encoded = $this->serializer->encode($envelope);
        $delay = $envelope->last(DelayStamp::class)?->getDelay() ?? 0;
        try {
            $id = $this->queue()->push($envelope->getMessage()::class, $encoded['body'], new Options(
                pipeline: $this->pipeline,
                delay: (int) \ceil(\max(0, $delay) / 1000),
                headers: [self::NAME => $this->name] + \array_map('strval', $encoded['headers'] ?? []),
            ));
        } catch (Exception $failed) {
            throw new TransportException($failed->getMessage(), 0, $failed);
        }

        return $envelope->with(new TransportMessageIdStamp($id));
    }

    /** `messenger:stats` asks for those that wait in the pipeline. */
    public function getMessageCount(): int
    {
        try {
            $size = $this->queue()->size();
        } catch (Exception $failed) {
            throw new TransportException($failed->getMessage(), 0, $failed);
        }

        return $size->waiting + $size->delayed;
    }

    /** The message that a job is. */
    public function message(Job $job): Envelope
    {
        $headers = \array_map(static fn (array $values): string => $values[0], $job->headers);
        unset($headers[self::NAME]);
        $envelope = $this->serializer->decode(['body' => $job->body, 'headers' => $headers]);

        return $envelope->with(new TransportMessageIdStamp($job->id));
    }

    public function get(): iterable
    {
        throw new TransportException(
            "Messages of `$this->name` are not consumed by a command: the server brings them to its workers."
                . " Add the pipeline to its configuration: `jobs: {consume: [$this->pipeline]}`."
        );
    }

    public function ack(Envelope $envelope): void
    {
        $this->get();
    }

    public function reject(Envelope $envelope): void
    {
        $this->get();
    }

    private function queue(): Queue
    {
        return $this->queue ??= ($this->connect)();
    }
}
