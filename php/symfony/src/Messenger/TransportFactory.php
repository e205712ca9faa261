<?php

declare(strict_types=1);

namespace Pronghorn\Symfony\Messenger;

use Pronghorn\Jobs\Queue;
use Symfony\Component\Messenger\Exception\InvalidArgumentException;
use Symfony\Component\Messenger\Transport\Serialization\SerializerInterface;
use Symfony\Component\Messenger\Transport\TransportFactoryInterface;
use Symfony\Component\Messenger\Transport\TransportInterface;

/** Makes transports of the DSN `pronghorn://PIPELINE`. */
final class TransportFactory implements TransportFactoryInterface
{
    /** @param array<string, mixed> $options `transport_name`, which Symfony adds; `address` of the server's RPC */
    public function createTransport(string $dsn, array $options, SerializerInterface $serializer): TransportInterface
    {
        $pipeline = \parse_url($dsn, \PHP_URL_HOST);
        if (!\is_string($pipeline) || $pipeline === '') {
            throw new InvalidArgumentException(
                "The DSN `$dsn` names no pipeline: write `pronghorn://default` for the one called `default`."
            );
        }
        $address = $options['address'] ?? null;
        // The server is asked for by the first message: an application that sends none needs none.
        $connect = static fn (): Queue => Queue::connect($address, $pipeline);

        return new Transport($connect, $pipeline, (string) ($options['transport_name'] ?? $pipeline), $serializer);
    }

    /** @param array<string, mixed> $options */
    public function supports(string $dsn, array $options): bool
    {
        return \str_starts_with($dsn, 'pronghorn://');
    }
}
