<?php

declare(strict_types=1);

namespace App\Http;

use App\User;
use Illuminate\Contracts\View\View as Page;
use Illuminate\Http\JsonResponse;
use Illuminate\Http\RedirectResponse;
use Illuminate\Http\Request;
use Illuminate\Routing\Controller;
use Illuminate\Support\Facades\Cookie;
use Illuminate\Support\Facades\DB;
use Illuminate\Support\Facades\Event;
use Illuminate\Support\Facades\URL;
use Illuminate\Support\Facades\View;

final class SiteController extends Controller
{
    /** The router keeps its controllers: this must not be the request of another call. */
    public function __construct(private readonly Request $request)
    {
    }

    public function home(Request $request): Page
    {
        $session = $request->session();
        $session->put('visits', $session->get('visits', 0) + 1);

        return \view('home', ['visits' => $session->get('visits'), 'user' => $request->user()]);
    }

    /** Waits as long as a busy database would, if the run wants that. */
    public function landing(): Page
    {
        $wait = (int) \config('bench.database_ms');
        if ($wait > 0) {
            \usleep($wait * 1000);
        }

        return \view('landing');
    }

    public function form(): Page
    {
        return \view('login');
    }

    public function login(Request $request): RedirectResponse
    {
        $credentials = $request->validate(['name' => 'required|string', 'password' => 'required|string']);
        if (!\auth()->attempt($credentials)) {
            return \back()->withErrors(['name' => 'Name and password do not fit.'])->withInput($request->only('name'));
        }
        $request->session()->regenerate();

        return \redirect()->intended('/me');
    }

    public function logout(Request $request): RedirectResponse
    {
        \auth()->logout();
        $request->session()->invalidate();

        return \redirect('/');
    }

    public function me(Request $request): string
    {
        return $request->user()->name;
    }

    /** Leaves behind whatever a request can. */
    public function litter(): never
    {
        \app()->setLocale('fr');
        \config(['app.name' => 'litter']);
        \app()->instance('litter', true);
        \app()->terminating(static fn () => \app()->instance('litter', true));
        \auth()->setUser(User::query()->findOrFail(1));
        \session(['litter' => true]);
        Cookie::queue('litter', '1');
        Event::listen('litter', static fn () => true);
        View::share('litter', true);
        URL::forceRootUrl('http://litter');
        DB::beginTransaction();

        throw new \RuntimeException('litter is left');
    }

    public function found(): JsonResponse
    {
        return \response()->json([
            'request' => $this->request->input('number'),
            'url' => URL::full(),
            'locale' => [\app()->getLocale(), \trans()->getLocale()],
            'config' => \config('app.name'),
            'container' => \app()->bound('litter'),
            'user' => \auth()->id(),
            'session' => \session()->has('litter'),
            'cookie' => Cookie::hasQueued('litter'),
            'listener' => Event::hasListeners('litter'),
            'view' => View::shared('litter'),
            'transactions' => DB::transactionLevel(),
        ]);
    }

    public function users(): JsonResponse
    {
        return \response()->json(User::query()->orderBy('id')->get(['id', 'name']));
    }

    public function upload(Request $request): JsonResponse
    {
        $request->validate(['title' => 'required', 'files' => 'required', 'files.*' => 'file|max:2048']);
        $stored = [];
        foreach ($request->file('files') as $file) {
            $path = $file->store('');
            $stored[] = [
                'name' => $file->getClientOriginalName(),
                'type' => $file->getMimeType(),
                'sha256' => \hash_file('sha256', \storage_path("uploads/$path")),
            ];
            \unlink(\storage_path("uploads/$path"));
        }

        return \response()->json(['title' => $request->title, 'files' => $stored], 201);
    }
}
