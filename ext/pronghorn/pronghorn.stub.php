<?php

/**
 * What the extension gives to the package pronghorn/worker; applications call none of it.
 *
 * @generate-class-entries
 */

namespace Pronghorn\Internal;

/**
 * Takes the memory that the server handed over: the descriptors of the box, the page and the bell of its thread, and the
 * pipe whose other end the server holds. What is in the way, or null.
 */
function ring_attach(int $memory, int $page, int $bell, int $server): ?string
{
}

/** What the server sent, at least one byte and at most so many; '' after a signal, null when the server is gone. */
function ring_read(int $most): ?string
{
}

/** Whether there is something to read now. */
function ring_readable(): bool
{
}

/** Sends all of it from $sent on, which counts up; false after a signal, null when the server is gone. */
function ring_write(string $bytes, int &$sent): ?bool
{
}
