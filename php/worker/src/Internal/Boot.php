<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\ConnectionLost;
use Pronghorn\NotAWorker;

/** From a started PHP process to a worker that the server knows. */
final class Boot
{
    /** The server's socket, as the number of a descriptor. */
    private const FD = 'PRONGHORN_FD';

    /** @throws NotAWorker */
    public static function expectServer(): void
    {
        if (\getenv(self::FD) === false) {
            $script = \basename(\get_included_files()[0] ?? 'worker.php');
            throw new NotAWorker(
                "$script is a worker of the Pronghorn application server and does not run by itself. Start it with\n\n"
                    . "    pronghorn serve $script\n"
            );
        }
    }

    /** What the calls of this worker's pool are; RoadRunner's variable. */
    public static function mode(): string
    {
        return \getenv('RR_MODE') ?: 'http';
    }

    /**
     * @param non-empty-list<string> $kinds
     * @throws NotAWorker
     * @throws ConnectionLost
     */
    public static function loop(array $kinds, Psr\Messages $messages): Loop
    {
        self::expectServer();
        $transport = new Relay(self::socket((string) \getenv(self::FD)));
        // A PHP script that this one starts would inherit the socket and take itself for a worker.
        \putenv(self::FD);
        $transport->announce($kinds);
        $output = new Output(\fopen('php://stderr', 'w'));
        LastWords::prepare($output);

        return new Loop($transport, $output, $messages);
    }

    /** Ends the boot: nothing can be answered. */
    public static function fail(string $message): never
    {
        \fwrite(\fopen('php://stderr', 'w'), "pronghorn: $message\n");
        exit(1);
    }

    /** @return resource */
    private static function socket(string $number)
    {
        $socket = \ctype_digit($number) ? @\fopen("php://fd/$number", 'r+') : false;
        if ($socket === false || !\str_ends_with(\stream_get_meta_data($socket)['stream_type'], '_socket')) {
            throw new NotAWorker(
                self::FD . "=$number does not name an open socket. A wrapper around php must hand its descriptors on."
            );
        }

        return $socket;
    }
}
