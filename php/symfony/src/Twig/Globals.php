<?php

declare(strict_types=1);

namespace Pronghorn\Symfony\Twig;

use Symfony\Contracts\Service\ResetInterface;
use Twig\Environment;

/** Globals of Twig as they are now: for the next request, one that a request has added is null. */
final class Globals implements ResetInterface
{
    /** @var array<string, mixed> */
    private readonly array $globals;

    public function __construct(private readonly Environment $twig)
    {
        $this->globals = \Closure::bind(fn (): array => $this->globals, $twig, Environment::class)();
    }

    public function reset(): void
    {
        $globals = $this->globals;
        \Closure::bind(function () use ($globals): void {
            // A name that has come stays: once Twig has rendered a template it takes no new ones.
            $this->globals = $globals + \array_fill_keys(\array_keys($this->globals), null);
            // The first template that asks has them resolved anew, with those of extensions.
            $this->resolvedGlobals = null;
        }, $this->twig, Environment::class)();
    }
}
