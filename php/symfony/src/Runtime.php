<?php

declare(strict_types=1);

namespace Pronghorn\Symfony;

use Symfony\Component\HttpKernel\HttpKernelInterface;
use Symfony\Component\Runtime\RunnerInterface;
use Symfony\Component\Runtime\SymfonyRuntime;

/**
 * Runs `public/index.php` as it is: in a worker of Pronghorn the kernel is kept and answers one
 * request after the other; everywhere else this is Symfony's own runtime.
 *
 * The environment variable `APP_RUNTIME=Pronghorn\Symfony\Runtime` chooses it. Its option `reboot`
 * (`extra.runtime` of composer.json, or `APP_RUNTIME_OPTIONS`) says when the kernel boots anew, see
 * {@see Runner}.
 */
final class Runtime extends SymfonyRuntime
{
    private readonly string|int $reboot;

    /** @param array<string, mixed> $options Symfony's, and `reboot` */
    public function __construct(array $options = [])
    {
        $reboot = $options['reboot'] ?? Runner::NEVER;
        $this->reboot = \is_string($reboot) && \ctype_digit($reboot) ? (int) $reboot : $reboot;
        parent::__construct($options);
    }

    public function getRunner(?object $application): RunnerInterface
    {
        return $application instanceof HttpKernelInterface && Runner::hasServer()
            ? new Runner($application, $this->reboot)
            : parent::getRunner($application);
    }
}
