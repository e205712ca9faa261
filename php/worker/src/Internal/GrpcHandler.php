<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\GrpcCall;

/** Gets a gRPC call and answers through it. */
final class GrpcHandler extends Handler
{
    private const SHAPE = 'Accepted is fn (Pronghorn\GrpcCall $call): void.';

    /** @throws BadWorker when nobody could call it */
    public static function of(callable $handler): self
    {
        $function = \Closure::fromCallable($handler);
        $reflection = new \ReflectionFunction($function);
        $type = ($reflection->getParameters()[0] ?? null)?->getType();
        $takesCall = $type === null || \in_array((string) $type, [GrpcCall::class, 'mixed', 'object'], true);
        if (!$takesCall || $reflection->getNumberOfRequiredParameters() > 1 || $reflection->isGenerator()) {
            throw new BadWorker(self::name($reflection) . ' does not take one gRPC call. ' . self::SHAPE);
        }

        return new self($function, (string) $reflection->getFileName(), (int) $reflection->getStartLine());
    }

    /** @param GrpcExchange $exchange */
    public function answer(Exchange $exchange): void
    {
        ($this->function)($exchange->grpcCall);
        $this->send($exchange, null);
    }

    /** @param GrpcExchange $exchange */
    public function send(Exchange $exchange, mixed $result): void
    {
        if ($exchange->state !== Exchange::DONE) {
            $exchange->grpcCall->end();
        }
    }

    public function function(): \Closure
    {
        return $this->function;
    }
}
