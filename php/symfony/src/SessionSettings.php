<?php

declare(strict_types=1);

namespace Pronghorn\Symfony;

use Symfony\Component\DependencyInjection\ContainerInterface;

/**
 * Settings of PHP that the handler of sessions in files changes when it is made. It is made once
 * and kept, and PHP's own state goes back to the boot after each call.
 *
 * @see \Symfony\Component\HttpFoundation\Session\Storage\Handler\NativeFileSessionHandler
 */
final class SessionSettings
{
    private const PATH = 'session.save_path';

    /** The directory before the first call. */
    private ?string $booted = null;
    private ?string $path = null;

    /** After a call: whether the handler was made in it. */
    public function keep(?ContainerInterface $container): void
    {
        $path = $container?->hasParameter(self::PATH) ? $container->getParameter(self::PATH) : null;
        // Whatever else a call has set is of that call.
        if (\is_string($path) && $path !== $this->booted && \ini_get(self::PATH) === $path) {
            $this->path = $path;
        }
    }

    /** Before a call. */
    public function apply(): void
    {
        $this->booted ??= (string) \ini_get(self::PATH);
        if ($this->path !== null) {
            \ini_set(self::PATH, $this->path);
            \ini_set('session.save_handler', 'files');
        }
    }

    /** With the kernel its handler goes. */
    public function forget(): void
    {
        $this->path = null;
    }
}
