<?php

declare(strict_types=1);

namespace Pronghorn\Symfony\DependencyInjection;

use Pronghorn\Symfony\Runner;
use Pronghorn\Symfony\Twig\Globals;
use Symfony\Component\DependencyInjection\Compiler\CompilerPassInterface;
use Symfony\Component\DependencyInjection\ContainerBuilder;
use Symfony\Component\DependencyInjection\Reference;

/** Globals of Twig are reset, where the application has Twig. */
final class TwigPass implements CompilerPassInterface
{
    public function process(ContainerBuilder $container): void
    {
        if ($container->has('twig')) {
            $container->register(Runner::TWIG, Globals::class)->setArguments([new Reference('twig')])
                ->setPublic(true)->addTag('kernel.reset', ['method' => 'reset']);
        }
    }
}
