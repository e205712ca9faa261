<?php

declare(strict_types=1);

namespace Pronghorn\Tests\Support;

use Psr\Http\Message\ServerRequestFactoryInterface;
use Psr\Http\Message\ServerRequestInterface;

/** A factory whose class nobody knows. */
final class ForwardingFactory implements ServerRequestFactoryInterface
{
    public function __construct(private readonly ServerRequestFactoryInterface $inner)
    {
    }

    public function createServerRequest(string $method, $uri, array $serverParams = []): ServerRequestInterface
    {
        return $this->inner->createServerRequest($method, $uri, $serverParams);
    }
}
