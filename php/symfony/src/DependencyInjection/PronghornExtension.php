<?php

declare(strict_types=1);

namespace Pronghorn\Symfony\DependencyInjection;

use Pronghorn\Cache\Cache;
use Pronghorn\Symfony\Cache\LazyStore;
use Pronghorn\Symfony\Command\ServerCommand;
use Pronghorn\Symfony\Lock\PronghornStore;
use Pronghorn\Symfony\Messenger\JobRunner;
use Pronghorn\Symfony\Messenger\TransportFactory;
use Pronghorn\Symfony\Runner;
use Symfony\Component\Cache\Adapter\Psr16Adapter;
use Symfony\Component\Config\Definition\Builder\TreeBuilder;
use Symfony\Component\Config\Definition\ConfigurationInterface;
use Symfony\Component\Console\Command\Command;
use Symfony\Component\DependencyInjection\ContainerBuilder;
use Symfony\Component\DependencyInjection\ContainerInterface;
use Symfony\Component\DependencyInjection\Definition;
use Symfony\Component\DependencyInjection\Extension\Extension;
use Symfony\Component\DependencyInjection\Reference;
use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\PersistingStoreInterface;
use Symfony\Component\Messenger\Transport\TransportFactoryInterface;

/** Services for those components that the application has. */
final class PronghornExtension extends Extension implements ConfigurationInterface
{
    /** By name: what the binary is asked, and what that is. */
    private const COMMANDS = [
        'serve' => ['serve', 'Serve the application with Pronghorn'],
        'reload' => ['reset', 'Replace the workers of the server: the new ones load the code anew'],
        'status' => ['workers', 'Show what the server and its workers are doing'],
    ];

    /** @param array<array<string, mixed>> $configs */
    public function load(array $configs, ContainerBuilder $container): void
    {
        ['storage' => $storage] = $this->processConfiguration($this, $configs);
        $this->commands($container);
        if (\interface_exists(TransportFactoryInterface::class)) {
            $container->setDefinition('messenger.transport.pronghorn.factory', new Definition(TransportFactory::class))
                ->addTag('messenger.transport_factory');
            $container->setDefinition(Runner::JOBS, new Definition(JobRunner::class, [
                new Reference('messenger.receiver_locator'),
                new Reference('messenger.routable_message_bus'),
                new Reference('event_dispatcher'),
                new Reference('services_resetter', ContainerInterface::NULL_ON_INVALID_REFERENCE),
            ]))->setPublic(true);
        }
        if (!\class_exists(Cache::class)) {
            return;
        }
        $container->setDefinition('pronghorn.storage', new Definition(LazyStore::class, [$storage]));
        if (\class_exists(Psr16Adapter::class)) {
            $container->setDefinition('pronghorn.cache', new Definition(Cache::class, [
                new Reference('pronghorn.storage'),
            ]));
            $container->setDefinition('cache.adapter.pronghorn', new Definition(Psr16Adapter::class, [null, '', 0]))
                ->setAbstract(true)
                ->addTag('cache.pool', ['provider' => 'pronghorn.cache', 'clearer' => 'cache.default_clearer']);
        }
        if (\interface_exists(PersistingStoreInterface::class)) {
            $container->setDefinition('pronghorn.lock_store', new Definition(PronghornStore::class, [
                new Reference('pronghorn.storage'),
            ]));
            $container->setDefinition('pronghorn.lock_factory', new Definition(LockFactory::class, [
                new Reference('pronghorn.lock_store'),
            ]));
            // As `$pronghornLockFactory`.
            $container->registerAliasForArgument('pronghorn.lock_factory', LockFactory::class);
        }
    }

    private function commands(ContainerBuilder $container): void
    {
        if (!\class_exists(Command::class)) {
            return;
        }
        foreach (self::COMMANDS as $name => [$argument, $description]) {
            $container->setDefinition("pronghorn.command.$name", new Definition(ServerCommand::class, [
                "pronghorn:$name",
                $description,
                [$argument],
                '%kernel.project_dir%',
            ]))->addTag('console.command', ['command' => "pronghorn:$name", 'description' => $description]);
        }
    }

    /** @param array<array<string, mixed>> $config */
    public function getConfiguration(array $config, ContainerBuilder $container): ConfigurationInterface
    {
        return $this;
    }

    public function getConfigTreeBuilder(): TreeBuilder
    {
        $tree = new TreeBuilder('pronghorn');
        $tree->getRootNode()->children()
            ->scalarNode('storage')
                ->info('The storage of the server (`kv`) that cache and locks use.')
                ->defaultValue('cache')
                ->cannotBeEmpty()
            ->end()
        ->end();

        return $tree;
    }
}
