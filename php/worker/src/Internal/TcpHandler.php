<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\TcpConnection;

/** Gets a connection with what has happened on it, and returns what is sent to the client. */
final class TcpHandler extends Handler
{
    private const SHAPE = 'Accepted is fn (Pronghorn\TcpConnection $connection): ?string.';

    /** @throws BadWorker when nobody could call it */
    public static function of(callable $handler): self
    {
        $function = \Closure::fromCallable($handler);
        $reflection = new \ReflectionFunction($function);
        $type = ($reflection->getParameters()[0] ?? null)?->getType();
        $taken = [TcpConnection::class, '?' . TcpConnection::class, 'mixed', 'object'];
        $takesConnection = $type === null || \in_array((string) $type, $taken, true);
        if (!$takesConnection || $reflection->getNumberOfRequiredParameters() > 1) {
            throw new BadWorker(self::name($reflection) . ' does not take one connection. ' . self::SHAPE);
        }
        if ($reflection->isGenerator()) {
            throw new BadWorker(self::name($reflection) . ' has a `yield`, so nothing of it would run. ' . self::SHAPE);
        }

        return new self($function, (string) $reflection->getFileName(), (int) $reflection->getStartLine());
    }

    /** @param TcpExchange $exchange */
    public function answer(Exchange $exchange): void
    {
        $this->send($exchange, ($this->function)($exchange->connection));
    }

    /** @param TcpExchange $exchange */
    public function send(Exchange $exchange, mixed $result): void
    {
        if ($result !== null && !\is_string($result)) {
            throw new \TypeError('A handler of connections returned ' . \get_debug_type($result) . '. ' . self::SHAPE);
        }
        $state = $exchange->connection->packedState();
        $exchange->transport->replyTcp(
            $exchange->id,
            $exchange->connection->isClosed(),
            $state === $exchange->packedState ? null : $state,
            $result ?? '',
            $exchange->deferred === [] ? 0 : Native::BUSY,
        );
        $exchange->state = Exchange::DONE;
    }

    public function function(): \Closure
    {
        return $this->function;
    }
}
