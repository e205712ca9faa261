<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

/** Gets the bytes of a raw call and returns those of its reply. */
final class RawHandler extends Handler
{
    private const SHAPE = 'Accepted is fn (string $payload): string.';

    /** @throws BadWorker when nobody could call it */
    public static function of(callable $handler): self
    {
        $function = \Closure::fromCallable($handler);
        $reflection = new \ReflectionFunction($function);
        $parameter = $reflection->getParameters()[0] ?? null;
        $takesString = $parameter !== null && \in_array(
            (string) ($parameter->getType() ?? 'mixed'),
            ['string', '?string', 'mixed'],
            true,
        );
        if (!$takesString || $reflection->getNumberOfRequiredParameters() > 1) {
            throw new BadWorker(self::name($reflection) . ' does not take one string. ' . self::SHAPE);
        }

        return new self($function, (string) $reflection->getFileName(), (int) $reflection->getStartLine());
    }

    /** @param RawExchange $exchange */
    public function answer(Exchange $exchange): void
    {
        $this->send($exchange, ($this->function)($exchange->payload));
    }

    public function send(Exchange $exchange, mixed $result): void
    {
        if (!\is_string($result)) {
            throw new \TypeError('A handler of raw calls returned ' . \get_debug_type($result) . '. ' . self::SHAPE);
        }
        $exchange->transport->replyRaw($exchange->id, $result, $exchange->deferred === [] ? 0 : Native::BUSY);
        $exchange->state = Exchange::DONE;
    }

    public function function(): \Closure
    {
        return $this->function;
    }
}
