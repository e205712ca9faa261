<?php

declare(strict_types=1);

namespace App;

use Symfony\Component\HttpFoundation\RequestStack;
use Symfony\Contracts\Service\ResetInterface;

/** Who asks. It remembers the answer, so the kernel has to have it reset between two requests. */
final class Visitor implements ResetInterface
{
    private ?string $name = null;

    public function __construct(private readonly RequestStack $requests)
    {
    }

    public function name(): ?string
    {
        return $this->name ??= $this->requests->getSession()->get('name');
    }

    public function reset(): void
    {
        $this->name = null;
    }
}
