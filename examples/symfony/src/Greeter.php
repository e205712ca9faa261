<?php

declare(strict_types=1);

namespace App;

use Psr\Cache\CacheItemPoolInterface;
use Symfony\Component\Messenger\Handler\MessageHandlerInterface;

final class Greeter implements MessageHandlerInterface
{
    public function __construct(private readonly CacheItemPoolInterface $shared)
    {
    }

    public function __invoke(Greet $greet): void
    {
        $this->shared->save($this->shared->getItem('greeted')->set($greet->name)->expiresAfter(600));
    }

    public function last(): string
    {
        return $this->shared->getItem('greeted')->get() ?? 'nobody';
    }
}
