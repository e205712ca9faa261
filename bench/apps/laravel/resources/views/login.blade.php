<!doctype html>
<title>Log in</title>
@foreach ($errors->all() as $error)
<p>{{ $error }}</p>
@endforeach
<form method="post" action="/login">
@csrf
<input name="name" value="{{ old('name') }}">
<input name="password" type="password">
<button>Log in</button>
</form>
