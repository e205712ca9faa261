<?php

declare(strict_types=1);

namespace Pronghorn\Symfony;

use Pronghorn\Symfony\DependencyInjection\PronghornExtension;
use Pronghorn\Symfony\DependencyInjection\TwigPass;
use Symfony\Component\DependencyInjection\Compiler\CompilerPassInterface;
use Symfony\Component\DependencyInjection\ContainerBuilder;
use Symfony\Component\DependencyInjection\Extension\ExtensionInterface;
use Symfony\Component\HttpKernel\Bundle\Bundle;

/** Messenger on the server's jobs, its storages as cache and locks, and globals of Twig that are reset. */
final class PronghornBundle extends Bundle
{
    public function build(ContainerBuilder $container): void
    {
        $container->addCompilerPass(new class () implements CompilerPassInterface {
            public function process(ContainerBuilder $container): void
            {
                if (!$container->has('messenger.receiver_locator')) {
                    $container->removeDefinition(Runner::JOBS);
                }
            }
        });
        $container->addCompilerPass(new TwigPass());
    }

    public function getContainerExtension(): ?ExtensionInterface
    {
        return $this->extension ??= new PronghornExtension();
    }
}
