<?php

declare(strict_types=1);

namespace App;

use Symfony\Bundle\FrameworkBundle\FrameworkBundle;
use Symfony\Bundle\FrameworkBundle\Kernel\MicroKernelTrait;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;
use Symfony\Component\HttpKernel\Kernel as BaseKernel;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;

/**
 * In production mode. Writes nothing where its source is: the compiled container goes to the data.
 */
final class Kernel extends BaseKernel
{
    use MicroKernelTrait;

    public function __construct(private readonly string $data)
    {
        parent::__construct('prod', false);
    }

    public function registerBundles(): iterable
    {
        yield new FrameworkBundle();
    }

    public function getProjectDir(): string
    {
        return \dirname(__DIR__);
    }

    public function getCacheDir(): string
    {
        return "$this->data/cache";
    }

    public function getLogDir(): string
    {
        return "$this->data/log";
    }

    private function configureContainer(ContainerConfigurator $container): void
    {
        $container->extension('framework', [
            'secret' => 'known to everybody',
            'http_method_override' => false,
            'php_errors' => ['log' => true],
            'router' => ['utf8' => true],
            'session' => [
                'storage_factory_id' => 'session.storage.factory.native',
                'handler_id' => null,
                'save_path' => $this->data,
                'name' => 'bench_session',
                'cookie_samesite' => 'lax',
                // A client without cookies makes a file per request: looking for old ones would
                // measure that.
                'gc_probability' => 0,
            ],
        ]);
        $services = $container->services()->defaults()->autowire()->autoconfigure();
        $services->set(SiteController::class)->tag('controller.service_arguments');
        $services->set(Visitor::class);
    }

    private function configureRoutes(RoutingConfigurator $routes): void
    {
        foreach (SiteController::ROUTES as $method => [$verb, $path]) {
            $routes->add($method, $path)->methods([$verb])->controller([SiteController::class, $method]);
        }
    }
}
