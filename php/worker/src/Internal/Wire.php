<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\ConnectionLost;

/** The bytes between the server and this worker. */
interface Wire
{
    /**
     * Waits until there is something.
     *
     * @param positive-int $most
     * @return string at least one byte; '' when the server has closed its end
     * @throws ConnectionLost
     */
    public function read(int $most): string;

    /** Whether a read would not wait. */
    public function isReadable(): bool;

    /**
     * Writes all of it.
     *
     * @throws ConnectionLost
     */
    public function write(string $bytes): void;
}
