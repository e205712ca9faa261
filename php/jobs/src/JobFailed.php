<?php

declare(strict_types=1);

namespace Pronghorn\Jobs;

use Pronghorn\Exception;

/** A job that somebody waited for was given up. The message says why, in the words of its handler. */
final class JobFailed extends \RuntimeException implements Exception
{
    /**
     * @param string $message why
     * @param ?string $remoteTrace what its worker threw, with the place and PHP's stack there
     */
    public function __construct(string $message = '', private readonly ?string $remoteTrace = null)
    {
        parent::__construct($message);
    }

    /**
     * What its worker threw: the class, the message, the place and PHP's stack there. It names
     * files, so it is for logs and not for clients.
     *
     * @return ?string null when its handler has not thrown
     */
    public function remoteTrace(): ?string
    {
        return $this->remoteTrace;
    }
}
