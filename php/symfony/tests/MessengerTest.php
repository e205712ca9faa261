<?php

declare(strict_types=1);

namespace Pronghorn\Symfony\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Internal\Native;
use Pronghorn\Job;
use Pronghorn\Jobs\FakeQueue;
use Pronghorn\Jobs\Queue;
use Pronghorn\Symfony\Messenger\JobRunner;
use Pronghorn\Symfony\Messenger\Transport;
use Pronghorn\Symfony\Messenger\TransportFactory;
use Symfony\Component\DependencyInjection\ServiceLocator;
use Symfony\Component\EventDispatcher\EventDispatcher;
use Symfony\Component\Messenger\Envelope;
use Symfony\Component\Messenger\Exception\InvalidArgumentException;
use Symfony\Component\Messenger\Exception\TransportException;
use Symfony\Component\Messenger\MessageBus;
use Symfony\Component\Messenger\Middleware\MiddlewareInterface;
use Symfony\Component\Messenger\Middleware\StackInterface;
use Symfony\Component\Messenger\Stamp\BusNameStamp;
use Symfony\Component\Messenger\Stamp\DelayStamp;
use Symfony\Component\Messenger\Stamp\ReceivedStamp;
use Symfony\Component\Messenger\Stamp\TransportMessageIdStamp;
use Symfony\Component\Messenger\Transport\Receiver\MessageCountAwareInterface;
use Symfony\Component\Messenger\Transport\Serialization\PhpSerializer;

final class MessengerTest extends TestCase
{
    private FakeQueue $pushed;
    private Transport $transport;

    protected function setUp(): void
    {
        $this->pushed = Queue::fake('lines');
        $this->transport = new Transport(fn (): Queue => $this->pushed, 'lines', 'async', new PhpSerializer());
    }

    public function testAMessageIsAJobAndBack(): void
    {
        $message = new \ArrayObject(['a' => 1]);
        $sent = $this->transport->send(new Envelope($message, [new DelayStamp(1500), new BusNameStamp('b')]));
        self::assertNotNull($sent->last(TransportMessageIdStamp::class));
        [$job] = $this->pushed->pushed();
        self::assertSame(\ArrayObject::class, $job->name);
        self::assertSame(['lines', 2], [$job->options->pipeline, $job->options->delay]);
        self::assertSame('async', $job->options->headers[Transport::NAME]);

        $envelope = $this->transport->message($this->job());
        self::assertEquals($message, $envelope->getMessage());
        self::assertSame('b', $envelope->last(BusNameStamp::class)->getBusName());
        self::assertSame('7', $envelope->last(TransportMessageIdStamp::class)->getId());
    }

    public function testWhatWaitsIsCounted(): void
    {
        $this->transport->send(new Envelope(new \ArrayObject()));
        $this->transport->send(new Envelope(new \ArrayObject(), [new DelayStamp(5000)]));
        self::assertInstanceOf(MessageCountAwareInterface::class, $this->transport);
        self::assertSame(2, $this->transport->getMessageCount());
    }

    public function testAJobIsHandled(): void
    {
        $this->transport->send(new Envelope(new \ArrayObject([1])));
        $seen = null;
        $job = $this->job();
        $this->runner(function (Envelope $envelope) use (&$seen): void {
            $seen = $envelope;
        })->run($job);
        self::assertSame('async', $seen->last(ReceivedStamp::class)->getTransportName());
        self::assertFalse($job->isDecided());
    }

    public function testWhatIsGivenUpIsADeadLetter(): void
    {
        $this->transport->send(new Envelope(new \ArrayObject([1])));
        $job = $this->job();
        $this->runner(fn () => throw new \DomainException('on purpose'))->run($job);
        self::assertSame(Native::JOB_FAILED, $job->outcome()[0]);
        self::assertStringContainsString('on purpose', $job->outcome()[2]);
    }

    public function testWhatNoTransportHasSent(): void
    {
        foreach ([[], [Transport::NAME => ['other']]] as $headers) {
            $job = new Job('a', '{}', $headers);
            $this->runner(fn () => null)->run($job);
            self::assertSame(Native::JOB_FAILED, $job->outcome()[0]);
        }
    }

    public function testTheDsn(): void
    {
        $factory = new TransportFactory();
        self::assertTrue($factory->supports('pronghorn://lines', []));
        self::assertFalse($factory->supports('amqp://lines', []));
        $transport = $factory->createTransport('pronghorn://lines', ['transport_name' => 'async'], new PhpSerializer());
        try {
            $transport->get();
            self::fail('it can be consumed');
        } catch (TransportException $refused) {
            self::assertStringContainsString('jobs: {consume: [lines]}', $refused->getMessage());
        }
        $this->expectException(InvalidArgumentException::class);
        $this->expectExceptionMessage('names no pipeline: write `pronghorn://default`');
        $factory->createTransport('pronghorn://', [], new PhpSerializer());
    }

    /** What a worker gets of the last one that was pushed. */
    private function job(): Job
    {
        $pushed = $this->pushed->pushed();
        $last = end($pushed);
        $headers = array_map(static fn (string $value): array => [$value], $last->options->headers);

        return new Job($last->name, $last->payload, $headers, '7');
    }

    private function runner(\Closure $handler): JobRunner
    {
        $middleware = new class ($handler) implements MiddlewareInterface {
            public function __construct(private readonly \Closure $handler)
            {
            }

            public function handle(Envelope $envelope, StackInterface $stack): Envelope
            {
                ($this->handler)($envelope);

                return $envelope;
            }
        };
        $transports = new ServiceLocator(['async' => fn (): Transport => $this->transport]);

        return new JobRunner($transports, new MessageBus([$middleware]), new EventDispatcher());
    }
}
