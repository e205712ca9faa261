<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\NotAWorker;

/**
 * A process that boots the application once, and from which the workers of its pool are forked
 * (`spawn: fork`).
 */
final class Zygote
{
    /** The descriptor by which the server orders workers. It sets this in a zygote alone. */
    public const CONTROL = 'PRONGHORN_ZYGOTE';
    /**
     * What a worker needs for its first call: loaded before the fork, they are compiled once and
     * their memory is shared. None names a superglobal: PHP would then fill that at each call,
     * though no code of the application asks for it.
     */
    private const CLASSES = [
        Ring::class, Leaks::class, Relay::class, Pipes::class, Frame::class, Native::class, Loop::class, Output::class,
        LastWords::class, WorkerChannel::class, AskedServer::class, HttpExchange::class, RawExchange::class,
        JobExchange::class, GrpcExchange::class, TcpExchange::class, Requests::class,
        Leftovers::class, Failure::class, Sender::class, Variables::class,
        \Pronghorn\Call::class, \Pronghorn\Response::class,
    ];

    public static function isOne(): bool
    {
        return \getenv(self::CONTROL) !== false;
    }

    /**
     * In a zygote: forks workers, and returns in each of them; the zygote ends there. Elsewhere it
     * does nothing.
     *
     * @param list<callable(): mixed> $before run before the first fork
     * @param list<callable(): mixed> $after run in each worker
     * @param ?HttpHandler $http whose first requests are answered before all that
     * @throws NotAWorker
     */
    public static function serve(array $before, array $after, ?HttpHandler $http): void
    {
        if (!self::isOne()) {
            return;
        }
        if (!\function_exists('Pronghorn\Internal\zygote_serve') || \Pronghorn\Internal\EXTENSION_API !== Ring::API) {
            throw new NotAWorker(
                '`spawn: fork` takes the extension `pronghorn` of the same release as the package pronghorn/worker.'
            );
        }
        $isWarm = $http !== null && Warmup::isAnswered($http);
        foreach ($before as $function) {
            $function();
        }
        \array_map('class_exists', self::CLASSES);
        LastWords::reserve();
        // PHP compiles a pattern once per process, and each worker has these at its start.
        foreach ([Boot::NUMBERS, Ring::NUMBERS, Leaks::PATTERN] as $pattern) {
            \preg_match($pattern, '');
        }
        \Pronghorn\Internal\zygote_serve((int) \getenv(self::CONTROL), $isWarm);
        foreach ($after as $function) {
            $function();
        }
    }
}
