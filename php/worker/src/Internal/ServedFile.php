<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

/** A body that the server reads from a file. */
final class ServedFile implements \Stringable
{
    /** Absolute, without links: the server's working folder may be another. */
    public readonly string $path;

    /** @throws BadResponse when there is no such file */
    public function __construct(string $path)
    {
        // A NUL byte makes these throw.
        $real = \str_contains($path, "\0") ? false : \realpath($path);
        if ($real === false || !\is_file($real)) {
            throw new BadResponse("The file $path cannot be sent: there is no such file.");
        }
        $this->path = $real;
    }

    public function __toString(): string
    {
        return (string) \file_get_contents($this->path);
    }
}
