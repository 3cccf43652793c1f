"""People's own accounts: sign-up, login, mail address, password, second factors, sessions, single sign-on.

django-allauth keeps the flows. This folder gives them our limits (``adapter``, ``forms``) and addresses (``urls``).
"""
