<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\ConnectionLost;
use Pronghorn\NotAWorker;

/** From a started PHP process to a worker that the server knows. */
final class Boot
{
    /**
     * The server's pipes as the numbers of two descriptors, to read from and to write to: `3,4`.
     */
    private const PIPES = 'PRONGHORN_PIPES';
    public const NUMBERS = '/^(\d+),(\d+)$/D';
    /** What the server tells a worker and nobody else. */
    private const INTERNAL = [
        self::PIPES, Ring::OFFER, Zygote::CONTROL, Warmup::TARGETS, Requests::ASKED, Leaks::ASKED,
        // The extension reads these.
        'PRONGHORN_CACHE', 'PRONGHORN_SESSIONS', 'PRONGHORN_SPIN',
    ];

    /** @throws NotAWorker */
    public static function expectServer(): void
    {
        if (\getenv(self::PIPES) === false && !Zygote::isOne()) {
            // As one would type it.
            $script = \get_included_files()[0] ?? 'worker.php';
            $folder = \getcwd() . '/';
            $script = \str_starts_with($script, $folder) ? \substr($script, \strlen($folder)) : $script;
            throw new NotAWorker(
                "$script is a worker of the Pronghorn application server and does not run by itself. Start it with\n\n"
                    . "    pronghorn serve $script\n"
            );
        }
    }

    /** The service that this worker's pool belongs to; RoadRunner's variable. */
    public static function mode(): string
    {
        return \getenv('RR_MODE') ?: 'http';
    }

    /**
     * @param non-empty-list<Kind> $kinds
     * @throws NotAWorker
     * @throws ConnectionLost
     */
    public static function loop(array $kinds, Psr\Messages $messages): Loop
    {
        self::expectServer();
        $pipes = (string) \getenv(self::PIPES);
        $announced = [];
        $streams = self::pipes($pipes);
        $ring = Ring::take($pipes, $announced);
        $relay = new Relay(new Pipes(...$streams), $announced);
        Requests::remember();
        Leaks::remember();
        \array_map(self::forget(...), self::INTERNAL);
        $answers = $relay->announce($kinds);
        $transport = $ring ?? $relay;
        WorkerChannel::$current = $answers ? new AskedServer($transport, (int) \getmypid()) : null;
        // Those of the boot: what a visitor's call prints into one would wait for another one's.
        Output::close(0);
        $output = new Output(\fopen('php://stderr', 'w'), $ring !== null);
        LastWords::prepare($output);

        return new Loop($transport, $output, $messages, survivesExit: $ring !== null);
    }

    /**
     * A PHP script that this one starts would inherit it and take itself for a worker, also where
     * it is given `$_ENV` or `$_SERVER`. These are not named: PHP would fill them at each call.
     */
    public static function forget(string $variable): void
    {
        if (\getenv($variable) !== false) {
            \putenv($variable);
        }
        foreach (['_SERVER', '_ENV'] as $superglobal) {
            unset($GLOBALS[$superglobal][$variable]);
        }
    }

    /** Ends the boot: nothing can be answered. */
    public static function fail(string $message): never
    {
        \fwrite(\fopen('php://stderr', 'w'), "pronghorn: $message\n");
        exit(1);
    }

    /**
     * @return array{resource, resource}
     * @throws NotAWorker
     */
    private static function pipes(string $numbers): array
    {
        $pipes = [];
        if (\preg_match(self::NUMBERS, $numbers, $number) === 1) {
            $pipes = [@\fopen("php://fd/$number[1]", 'r'), @\fopen("php://fd/$number[2]", 'w')];
        }
        if (\count(\array_filter($pipes, self::isOpen(...))) !== 2) {
            throw new NotAWorker(
                self::PIPES . "=$numbers names no two open pipes. A wrapper around php must hand its descriptors on."
            );
        }

        return $pipes;
    }

    /**
     * Whether it is a pipe or a socket: a file in its place would be read, and written over.
     *
     * @param resource|false $pipe
     */
    private static function isOpen($pipe): bool
    {
        return $pipe !== false && \in_array(\fstat($pipe)['mode'] & 0170000, [0010000, 0140000], true);
    }
}
