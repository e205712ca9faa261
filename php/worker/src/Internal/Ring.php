<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\ConnectionLost;

/** Memory that is shared with the server, by the extension. No system call while both sides are awake. */
final class Ring implements Wire
{
    /** The descriptors of the box, and of the page and the bell of its thread: `5,6,7`. */
    public const OFFER = 'PRONGHORN_RING';

    /**
     * Takes what the server offers, where the extension is loaded.
     *
     * @param int $server the descriptor of a pipe whose other end the server holds
     * @param list<string> $refused what is in the way, if something is
     */
    public static function take(int $server, array &$refused): ?self
    {
        $offered = \getenv(self::OFFER);
        if ($offered === false || !\function_exists(__NAMESPACE__ . '\ring_attach')) {
            return null;
        }
        // A script that this one starts has none of it.
        \putenv(self::OFFER);
        if (\preg_match('/^(\d+),(\d+),(\d+)$/D', $offered, $number) !== 1) {
            $refused[] = self::OFFER . "=$offered names no three descriptors";

            return null;
        }
        $wrong = \Pronghorn\Internal\ring_attach((int) $number[1], (int) $number[2], (int) $number[3], $server);
        if ($wrong !== null) {
            $refused[] = $wrong;

            return null;
        }

        return new self();
    }

    public function read(int $most): string
    {
        do {
            $bytes = \Pronghorn\Internal\ring_read($most);
            // After a signal PHP's handlers have run here.
        } while ($bytes === '');

        return $bytes ?? '';
    }

    public function isReadable(): bool
    {
        return \Pronghorn\Internal\ring_readable();
    }

    public function write(string $bytes): void
    {
        $sent = 0;
        do {
            $written = \Pronghorn\Internal\ring_write($bytes, $sent);
        } while ($written === false);
        if ($written === null) {
            throw new ConnectionLost('the server is gone');
        }
    }
}
