<?php

declare(strict_types=1);

namespace App;

use Pronghorn\Symfony\PronghornBundle;
use Symfony\Bundle\FrameworkBundle\FrameworkBundle;
use Symfony\Bundle\FrameworkBundle\Kernel\MicroKernelTrait;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;
use Symfony\Component\HttpKernel\Kernel as BaseKernel;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;

final class Kernel extends BaseKernel
{
    use MicroKernelTrait;

    public function registerBundles(): iterable
    {
        yield new FrameworkBundle();
        yield new PronghornBundle();
    }

    public function getProjectDir(): string
    {
        return \dirname(__DIR__);
    }

    private function configureContainer(ContainerConfigurator $container): void
    {
        $container->extension('framework', [
            // Each application has its own, and no repository.
            'secret' => 'not a secret',
            'http_method_override' => false,
            'router' => ['utf8' => true],
            'session' => ['storage_factory_id' => 'session.storage.factory.native'],
            'cache' => ['pools' => ['shared' => ['adapter' => 'cache.adapter.pronghorn']]],
            'messenger' => [
                'reset_on_message' => true,
                'transports' => ['async' => 'pronghorn://default'],
                'routing' => [Greet::class => 'async'],
            ],
        ]);
        $services = $container->services()->defaults()->autowire()->autoconfigure();
        $services->set(Greeter::class);
        $services->set(HomeController::class)->tag('controller.service_arguments');
    }

    private function configureRoutes(RoutingConfigurator $routes): void
    {
        $routes->add('home', '/')->controller([HomeController::class, 'home'])->methods(['GET']);
        $routes->add('greet', '/')->controller([HomeController::class, 'greet'])->methods(['POST']);
    }
}
