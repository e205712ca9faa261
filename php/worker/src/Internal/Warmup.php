<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\Request;

/**
 * The requests of the pool's `warmup`, answered in the zygote: what PHP, libraries and the
 * application do once per process is done before the first fork, for all workers.
 */
final class Warmup
{
    /** Their targets, with a space between each two. The server sets it in a zygote alone. */
    public const TARGETS = 'PRONGHORN_WARMUP';

    /** Whether all were answered, and well; else each worker is asked, and its answer counts. */
    public static function isAnswered(HttpHandler $handler): bool
    {
        $targets = (string) \getenv(self::TARGETS);
        Boot::forget(self::TARGETS);
        if ($targets === '' || $handler->isFrontController()) {
            // Superglobals are filled in workers only.
            return false;
        }
        $output = new Output(\fopen('php://stderr', 'w'));
        $output->start();
        $failure = null;
        foreach (\explode(' ', $targets) as $target) {
            $failure = self::failure($handler, $target, $output);
            if ($failure !== null) {
                $output->write("pronghorn: GET $target failed before the fork, so each worker answers it: $failure");
                break;
            }
        }
        $output->stop();

        return $failure === null;
    }

    private static function failure(HttpHandler $handler, string $target, Output $output): ?string
    {
        $recorder = new Recorder();
        // As after each call of a worker.
        $leftovers = new Leftovers(
            $recorder,
            $output,
            native: true,
            superglobals: Requests::areWanted() ? null : new Superglobals(),
            resets: Requests::areWanted(),
        );
        $failure = self::answer($handler, Request::create('GET', $target), $recorder, $leftovers, $output);
        $leftovers->settle();
        $leftovers->stop();
        $output->settle(null);

        return $failure;
    }

    private static function answer(
        HttpHandler $handler,
        Request $request,
        Recorder $recorder,
        Leftovers $leftovers,
        Output $output,
    ): ?string {
        $exchange = new HttpExchange($recorder, 1, null, $request);
        $exchange->handler = $handler;
        Exchange::$current = $exchange;
        $thrown = self::thrown(static fn () => $handler->answer($exchange));
        while (($work = \array_shift($exchange->deferred)) !== null) {
            $later = self::thrown($work);
            $thrown ??= $later;
        }
        $leftovers->clear($exchange);
        Exchange::$current = null;
        $exchange->close();
        $output->settle($exchange);

        return match (true) {
            $thrown !== null => (string) $thrown,
            $recorder->status === 0 => 'exit() ended it',
            $recorder->status >= 500 => "it answered $recorder->status",
            default => null,
        };
    }

    private static function thrown(callable $function): ?\Throwable
    {
        try {
            \Pronghorn\Internal\until_exit($function);

            return null;
        } catch (\Throwable $thrown) {
            return $thrown;
        }
    }
}
