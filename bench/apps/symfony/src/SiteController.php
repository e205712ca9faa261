<?php

declare(strict_types=1);

namespace App;

use Symfony\Component\HttpFoundation\File\UploadedFile;
use Symfony\Component\HttpFoundation\JsonResponse;
use Symfony\Component\HttpFoundation\RedirectResponse;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpFoundation\StreamedResponse;

final class SiteController
{
    public const ROUTES = [
        'hello' => ['GET', '/api/hello/{name}'],
        'echo' => ['POST', '/api/echo'],
        'upload' => ['POST', '/api/upload'],
        'home' => ['GET', '/'],
        'login' => ['POST', '/login'],
        'logout' => ['POST', '/logout'],
        'me' => ['GET', '/me'],
        'report' => ['GET', '/report'],
        'litter' => ['GET', '/litter'],
    ];

    public function __construct(private readonly Visitor $visitor)
    {
    }

    public function hello(string $name): Response
    {
        return new JsonResponse(['hello' => $name]);
    }

    public function echo(Request $request): Response
    {
        return new JsonResponse([
            'query' => $request->query->all(),
            'form' => $request->request->all(),
            'body' => $request->getContent(),
        ]);
    }

    public function upload(Request $request): Response
    {
        $describe = static function (UploadedFile $upload): array {
            $file = $upload->move(\sys_get_temp_dir(), \uniqid('upload'));
            $described = [
                'name' => $upload->getClientOriginalName(),
                'size' => $file->getSize(),
                'sha256' => \hash_file('sha256', $file->getPathname()),
            ];
            \unlink($file->getPathname());

            return $described;
        };

        return new JsonResponse([
            'title' => $request->request->get('title'),
            'files' => \array_map($describe, $request->files->all('files')),
        ], 201);
    }

    public function home(Request $request): Response
    {
        $session = $request->getSession();
        $session->set('visits', $session->get('visits', 0) + 1);
        $name = \htmlspecialchars($this->visitor->name() ?? 'a guest');

        return new Response("<!doctype html>\n<p>Visit {$session->get('visits')} of $name</p>\n");
    }

    /** Each one's password is the name. */
    public function login(Request $request): Response
    {
        $name = $request->request->get('name');
        if (!\in_array($name, ['ada', 'grace'], true) || $request->request->get('password') !== $name) {
            return new Response('Name and password do not fit.', 403);
        }
        $request->getSession()->set('name', $name);
        $request->getSession()->migrate();

        return new RedirectResponse('/me');
    }

    public function logout(Request $request): Response
    {
        $request->getSession()->invalidate();

        return new RedirectResponse('/');
    }

    public function me(): Response
    {
        $name = $this->visitor->name();

        return $name === null ? new RedirectResponse('/') : new Response($name);
    }

    public function report(): Response
    {
        return new StreamedResponse(static function (): void {
            echo "line 1\n";
            \flush();
            echo "line 2\n";
        });
    }

    /** Ends in the middle of everything. */
    public function litter(Request $request): never
    {
        $request->getSession()->set('litter', true);
        $request->setLocale('fr');
        $this->visitor->name();

        throw new \RuntimeException('litter is left');
    }
}
